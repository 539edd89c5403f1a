// What a Rope was made with.
#include "handle.h"

namespace halyard::python {
namespace {

halyard_rope_options options_of(PyObject *self) {
    halyard_rope_options options;
    halyard_rope_get_options(handle_of<halyard_rope>(self), &options);
    return options;
}

PyObject *get_head_dim(PyObject *self, void *) {
    return PyLong_FromLongLong(options_of(self).head_dim);
}

PyObject *get_rotary_dim(PyObject *self, void *) {
    return PyLong_FromLongLong(options_of(self).rotary_dim);
}

PyObject *get_max_positions(PyObject *self, void *) {
    return PyLong_FromLongLong(options_of(self).max_positions);
}

PyObject *represent(PyObject *self) {
    const halyard_rope_options options = options_of(self);
    return PyUnicode_FromFormat("<halyard.Rope of %lld features, %lld positions>",
                                static_cast<long long>(options.rotary_dim),
                                static_cast<long long>(options.max_positions));
}

PyGetSetDef attributes[] = {
    {"head_dim", get_head_dim, nullptr, "Features of a head.", nullptr},
    {"rotary_dim", get_rotary_dim, nullptr, "The features that are rotated, from the first on.", nullptr},
    {"max_positions", get_max_positions, nullptr, "The number of positions.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

const Members rope_members = {nullptr, attributes, represent, nullptr, nullptr};

}  // namespace halyard::python
