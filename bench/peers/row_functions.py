"""What a row computes, put together of what a library has."""

# Gated units by the name of their activation.
GATES = {"glu": "sigmoid", "bilinear": "identity", "reglu": "relu", "geglu": "gelu", "geglu_tanh": "gelu_tanh",
         "swiglu": "silu"}
PACKED = "_packed"
# What a library with all that is below computes; its activations come to them.
OPERATIONS = [*GATES, *[name + PACKED for name in GATES], "rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm", "add",
              "cast", "linear", "ffn", "attention"]


class Library:
    """Has add(x, y), multiply(x, y), cast(x, dtype), linear(x, weight, bias), of which a bias may be None, attention(shape, q, k,
    v), and functions to be: activation(name), of x, where "identity" is not asked for, norm(rms, eps), of x, weight and bias,
    which may be None, and halves(columns), of x, which gives these columns of it, each as (start, stop, step)."""

    def gated(self, name):
        if name == "identity":
            return self.multiply
        activation = self.activation(name)
        return lambda gate, up: self.multiply(activation(gate), up)

    def packed(self, name, request):
        """A gated unit of one tensor."""
        d, gated = request["d"], self.gated(name)
        first, second = (0, d, 1), (d, 2 * d, 1)
        halves = self.halves({"gate_up": (first, second), "up_gate": (second, first),
                              "interleaved": ((0, 2 * d, 2), (1, 2 * d, 2))}[request["layout"]])
        return lambda x: gated(*halves(x))

    def add_norm(self, rms, eps):
        norm = self.norm(rms, eps)

        def add_norm(x, residual, weight, bias):
            total = self.add(x, residual)
            return [total, norm(total, weight, bias)]

        return add_norm

    def layer(self, form, eps):
        norm = None if form["norm"] == "none" else self.norm(form["norm"] == "rms", eps)
        name = form["activation"]
        gated = self.gated(name) if form["gated"] else None
        activation = self.activation(name) if name != "identity" and not gated else lambda x: x

        def layer(inputs, weights):
            x = norm(inputs[0], weights.get("norm_weight"), weights.get("norm_bias")) if norm else inputs[0]
            y = self.linear(x, weights["first"], weights.get("bias"))
            y = gated(y, self.linear(x, weights["up"], None)) if gated else activation(y)
            if form["is_ffn"]:
                y = self.linear(y, weights["down"], weights.get("bias_down"))
            return [self.add(y, inputs[0 if form["is_ffn"] else 1]) if form["has_residual"] else y]

        return layer

    def row(self, request):
        """A function of inputs and of tensors by their names that gives the outputs."""
        name, eps = request["operation"], request["eps"]
        if "layer" in request:
            return self.layer(request["layer"], eps)
        if name == "attention":
            return lambda inputs, _: [self.attention(request["attention"], *inputs)]
        if name in ("rms_norm", "layer_norm"):
            norm = self.norm("rms" in name, eps)
            return lambda inputs, weights: [norm(inputs[0], weights.get("norm_weight"), weights.get("norm_bias"))]
        if name.startswith("add_"):
            add_norm = self.add_norm("rms" in name, eps)
            return lambda inputs, weights: add_norm(*inputs, weights.get("norm_weight"), weights.get("norm_bias"))
        if name == "cast":
            return lambda inputs, _: [self.cast(inputs[0], request["output_dtype"])]
        function = (self.add if name == "add" else self.gated(GATES[name]) if name in GATES else
                    self.packed(GATES[name.removesuffix(PACKED)], request) if name.endswith(PACKED) else self.activation(name))
        return lambda inputs, _: [function(*inputs)]
