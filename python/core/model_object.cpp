// What a Model is, and the tokens that it generates, as Python has them.
#include <cstdlib>

#include "context.h"
#include "handle.h"
#include "model.h"

namespace halyard::python {
namespace {

ModelFacts facts_of_model(PyObject *self) {
    return facts_of(handle_of<LoadedModel>(self));
}

// ---- attributes ----

PyObject *list_of(const Ids &ids) {
    PyObject *list = PyList_New(0);
    for (int64_t i = 0; list != nullptr && i < ids.count; i++) {
        PyObject *id = PyLong_FromLongLong(ids.values[i]);
        if (id == nullptr || PyList_Append(list, id) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(id);
    }
    return list;
}

PyObject *get_config(PyObject *self, void *) {
    const ModelFacts facts = facts_of_model(self);
    const halyard_block_config &block = facts.block;
    return Py_BuildValue(
        "{s:s,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:N,s:N}", "architecture", facts.architecture, "vocab_size",
        static_cast<long long>(facts.stack.vocab_size), "hidden_size", static_cast<long long>(block.hidden_size),
        "intermediate_size", static_cast<long long>(block.intermediate_size), "num_hidden_layers",
        static_cast<long long>(facts.layers), "num_attention_heads", static_cast<long long>(block.num_attention_heads),
        "num_key_value_heads", static_cast<long long>(block.num_key_value_heads), "head_dim",
        static_cast<long long>(block.head_dim), "max_position_embeddings",
        static_cast<long long>(facts.max_position_embeddings), "tie_word_embeddings",
        PyBool_FromLong(facts.tie_word_embeddings), "eos_token_ids", list_of(facts.ends));
}

PyObject *get_matrix_formats(PyObject *self, void *) {
    PyObject *formats = PyDict_New();
    const int64_t format_count = facts_of_model(self).formats;
    for (int64_t i = 0; formats != nullptr && i < format_count; i++) {
        int64_t count = 0;
        const char *name = format_of(handle_of<LoadedModel>(self), i, &count);
        PyObject *number = PyLong_FromLongLong(count);
        if (number == nullptr || PyDict_SetItemString(formats, name, number) != 0) {
            Py_CLEAR(formats);
        }
        Py_XDECREF(number);
    }
    return formats;
}

PyObject *get_max_positions(PyObject *self, void *) {
    return PyLong_FromLongLong(facts_of_model(self).max_positions);
}

PyObject *get_nbytes(PyObject *self, void *) {
    return PyLong_FromLongLong(facts_of_model(self).block_bytes);
}

PyObject *represent(PyObject *self) {
    const ModelFacts facts = facts_of_model(self);
    return PyUnicode_FromFormat("<halyard.Model %s of %lld layers, %lld features, %lld tokens>", facts.architecture,
                                static_cast<long long>(facts.layers), static_cast<long long>(facts.block.hidden_size),
                                static_cast<long long>(facts.stack.vocab_size));
}

// ---- tokens ----

PyObject *generate(PyObject *self, PyObject *positional, PyObject *named) {
    PyObject *method = PyObject_GetAttrString(self, "stream");
    PyObject *stream = method != nullptr ? PyObject_Call(method, positional, named) : nullptr;
    PyObject *ids = stream != nullptr ? PySequence_List(stream) : nullptr;
    Py_XDECREF(method);
    Py_XDECREF(stream);
    return ids;
}

PyObject *next(PyObject *self) {
    HandleUse use;
    if (!use.begin(self, true, "TokenStream", "self")) {
        return nullptr;
    }
    const ContextUse context;
    Failure failure = {};
    int64_t token = -1;
    PyThreadState *state = PyEval_SaveThread();
    const halyard_status status = next_token(context.get(), handle_of<TokenStream>(self), &failure, &token);
    PyEval_RestoreThread(state);
    if (status != HALYARD_OK) {
        raise(status, failure);
        free(failure.sentence);
        return nullptr;
    }
    return token >= 0 ? PyLong_FromLongLong(token) : nullptr;
}

PyObject *represent_stream(PyObject *) {
    return PyUnicode_FromString("<halyard.TokenStream>");
}

PyMethodDef methods[] = {
    {"generate", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(generate)), METH_VARARGS | METH_KEYWORDS,
     "generate($self, ids, max_tokens, *, temperature=0.0, top_k=0, top_p=1.0, seed=0, stop=None)\n--\n\nA list of "
     "what "
     "stream() yields."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef attributes[] = {
    {"config", get_config, nullptr, "What the files say, by the names of transformers; of the first layer.", nullptr},
    {"matrix_formats", get_matrix_formats, nullptr, "How many matrices there are of each format.", nullptr},
    {"max_positions", get_max_positions, nullptr, "Bound of positions.", nullptr},
    {"nbytes", get_nbytes, nullptr, "Bytes of packed weights and tables, without the embedding and lm_head.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

const Members model_members = {methods, attributes, represent, nullptr, nullptr};
const Members token_stream_members = {nullptr, nullptr, represent_stream, nullptr, next};

}  // namespace halyard::python
