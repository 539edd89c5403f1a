// What blocks and stacks are.
#include "fields.h"
#include "handle.h"
#include "methods.h"

namespace halyard::python {
namespace {

halyard_block_config config_of_block(PyObject *self) {
    halyard_block_config config;
    halyard_block_get_config(handle_of<halyard_block>(self), &config);
    return config;
}

PyObject *get_block_config(PyObject *self, void *) {
    const halyard_block_config config = config_of_block(self);
    return fields_of(constructor_of(Type::block), &config, sizeof config);
}

PyObject *get_block_bytes(PyObject *self, void *) {
    return PyLong_FromLongLong(halyard_block_bytes(handle_of<halyard_block>(self)));
}

PyObject *represent_block(PyObject *self) {
    const halyard_block_config config = config_of_block(self);
    return PyUnicode_FromFormat("<halyard.Block of %lld features, %lld heads>",
                                static_cast<long long>(config.hidden_size),
                                static_cast<long long>(config.num_attention_heads));
}

halyard_stack_config config_of_stack(PyObject *self) {
    halyard_stack_config config;
    halyard_stack_get_config(handle_of<halyard_stack>(self), &config);
    return config;
}

PyObject *get_stack_config(PyObject *self, void *) {
    const halyard_stack_config config = config_of_stack(self);
    return fields_of(constructor_of(Type::stack), &config, sizeof config);
}

PyObject *represent_stack(PyObject *self) {
    const halyard_stack_config config = config_of_stack(self);
    return PyUnicode_FromFormat("<halyard.Stack of %lld features, %lld tokens>",
                                static_cast<long long>(config.hidden_size), static_cast<long long>(config.vocab_size));
}

PyGetSetDef block_attributes[] = {
    {"config", get_block_config, nullptr, "The fields that it was made with, zeros filled in.", nullptr},
    {"nbytes", get_block_bytes, nullptr, "Bytes of the weights that it packed, of biases and tables.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyGetSetDef stack_attributes[] = {
    {"config", get_stack_config, nullptr, "The fields that it was made with, zeros filled in.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

const Members block_members = {nullptr, block_attributes, represent_block, nullptr, nullptr};
const Members stack_members = {nullptr, stack_attributes, represent_stack, nullptr, nullptr};

}  // namespace halyard::python
