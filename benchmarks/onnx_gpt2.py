"""Turn a GPT-2 folder into an ONNX graph with ONNX Runtime's fused operators, as a peer for `generate.py`.

Attention with a key/value cache, GELU and both norms are ONNX Runtime's own operators (domain com.microsoft). Only
the last position is projected to the vocabulary. `quantized` applies dynamic int8 quantisation to every matrix.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_onnx(folder: Path, path: Path, *, quantized: bool) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from safetensors.numpy import load_file

    weights = load_file(folder / "model.safetensors")
    weights = {name.removeprefix("transformer."): value.astype(np.float32) for name, value in weights.items()}
    layers = sum(name.endswith("ln_1.weight") for name in weights)
    width = weights["wte.weight"].shape[1]
    heads = width // 64
    kept, nodes = [], []

    def constant(name: str, value: np.ndarray) -> str:
        kept.append(numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def node(operator: str, inputs: list[str], output: str, domain: str = "", **attributes: object) -> str:
        nodes.append(helper.make_node(operator, inputs, [output], domain=domain, name=output, **attributes))
        return output

    def stored(name: str) -> str:
        return constant(name, weights[name])

    tokens = node("Gather", [constant("tokens", weights["wte.weight"]), "ids"], "embedded")
    places = node("Gather", [stored("wpe.weight"), "positions"], "placed")
    x = node("Add", [tokens, places], "x")
    normed = node(
        "LayerNormalization", [x, stored("h.0.ln_1.weight"), stored("h.0.ln_1.bias")], "normed", epsilon=1e-5
    )
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT32, ["batch", "time"]),
        helper.make_tensor_value_info("positions", TensorProto.INT32, [1, "time"]),
    ]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(weights["wte.weight"])])]

    def add_norm(x: str, y: str, bias: str, norm: str, name: str) -> tuple[str, str]:
        """(norm(x + y + bias), x + y + bias)"""
        nodes.append(
            helper.make_node(
                "SkipLayerNormalization",
                [x, y, stored(f"{norm}.weight"), stored(f"{norm}.bias"), bias],
                [f"{name}_normed", "", "", f"{name}_sum"],
                domain="com.microsoft",
                epsilon=1e-5,
                name=name,
            )
        )
        return f"{name}_normed", f"{name}_sum"

    for layer in range(layers):
        at = f"h.{layer}"
        past, present = f"past_{layer}", f"present_{layer}"
        shape = [2, "batch", heads, "past", 64]
        inputs.append(helper.make_tensor_value_info(past, TensorProto.FLOAT, shape))
        outputs.append(helper.make_tensor_value_info(present, TensorProto.FLOAT, [2, "batch", heads, "all", 64]))
        fused = [normed, stored(f"{at}.attn.c_attn.weight"), stored(f"{at}.attn.c_attn.bias"), "", past]
        nodes.append(
            helper.make_node(
                "Attention",
                fused,
                [f"attended_{layer}", present],
                domain="com.microsoft",
                num_heads=heads,
                unidirectional=1,
                name=f"attention_{layer}",
            )
        )
        out = node("MatMul", [f"attended_{layer}", stored(f"{at}.attn.c_proj.weight")], f"projected_{layer}")
        normed, x = add_norm(x, out, stored(f"{at}.attn.c_proj.bias"), f"{at}.ln_2", f"middle_{layer}")
        inner = node("MatMul", [normed, stored(f"{at}.mlp.c_fc.weight")], f"inner_{layer}")
        bias = stored(f"{at}.mlp.c_fc.bias")
        inner = node("FastGelu", [inner, bias], f"gelu_{layer}", "com.microsoft")
        out = node("MatMul", [inner, stored(f"{at}.mlp.c_proj.weight")], f"contracted_{layer}")
        norm = f"h.{layer + 1}.ln_1" if layer + 1 < layers else "ln_f"
        normed, x = add_norm(x, out, stored(f"{at}.mlp.c_proj.bias"), norm, f"end_{layer}")
    last = node("Gather", [normed, constant("minus_one", np.array(-1, dtype=np.int64))], "last", axis=1)
    node("MatMul", [last, constant("output", weights["wte.weight"].T)], "logits")
    graph = helper.make_graph(nodes, "gpt2", inputs, outputs, kept)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    if not quantized:
        onnx.save(model, path)
        return
    from onnxruntime.quantization import QuantType, quantize_dynamic

    plain = path.with_suffix(".plain.onnx")
    onnx.save(model, plain)
    quantize_dynamic(
        plain,
        path,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=["MatMul", "Attention"],
        extra_options={"DefaultTensorType": TensorProto.FLOAT},
    )
    plain.unlink()
