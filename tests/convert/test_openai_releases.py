"""OpenAI's releases: golden ones agree with the original programs, written ones read back, damage is named."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.convert import openai
from headwater.convert.openai import _BLOCK, _release_name, read_gpt1, read_gpt2
from headwater.convert.tensor_bundle import TensorBundle
from headwater.errors import DataError, FolderError, HeadwaterError
from headwater.model import Transformer, build_model, preset


def mask(checksum: int) -> int:
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c_by_bits(data: bytes) -> int:
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def table_block(entries: list[tuple[bytes, bytes]], compression: int = 0) -> bytes:
    """One block of LevelDB's table format with its trailer; a restart point every third key."""
    block, restarts, before = bytearray(), [], b""
    for index, (key, value) in enumerate(entries):
        shared = 0
        if index % 3 == 0:
            restarts.append(len(block))
        else:
            while shared < min(len(key), len(before)) and key[shared] == before[shared]:
                shared += 1
        block += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    content = bytes(block) + b"".join(struct.pack("<I", r) for r in restarts) + struct.pack("<I", len(restarts))
    content += bytes([compression])
    return content + struct.pack("<I", mask(crc32c_by_bits(content)))


def write_bundle(tensors: dict[str, np.ndarray], prefix: Path, shards: int = 1, in_block: int = 5) -> None:
    """A checkpoint as TensorFlow lays it out, spread over `shards` files."""
    entries = [(b"", number(1, shards))]
    contents = [bytearray() for _ in range(shards)]
    for index, (name, array) in enumerate(sorted(tensors.items())):
        shard = index % shards
        data = array.tobytes()
        shape = b"".join(message(2, number(1, size)) for size in array.shape)
        kind = {"float32": 1, "float16": 19}[array.dtype.name]
        checksum = varint(6 << 3 | 5) + struct.pack("<I", mask(google_crc32c.value(data)))
        place = number(3, shard) + number(4, len(contents[shard])) + number(5, len(data))
        entries.append((name.encode(), number(1, kind) + message(2, shape) + place + checksum))
        contents[shard] += data
    for shard, content in enumerate(contents):
        Path(f"{prefix}.data-{shard:05d}-of-{shards:05d}").write_bytes(content)
    file, handles = bytearray(), []
    for start in range(0, len(entries), in_block):
        group = entries[start : start + in_block]
        block = table_block(group)
        handles.append((group[-1][0] + b"~", varint(len(file)) + varint(len(block) - 5)))
        file += block
    places = []
    for group in ([], handles):
        block = table_block(group)
        places.append(varint(len(file)) + varint(len(block) - 5))
        file += block
    footer = (places[0] + places[1]).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    Path(f"{prefix}.index").write_bytes(bytes(file) + footer)


def gpt2_tensors(model: Transformer) -> dict[str, np.ndarray]:
    tensors = {}
    for name, parameter in model.state_dict().items():
        array = parameter.numpy()
        linear = array.ndim == 2 and name.startswith("blocks.")
        tensors[_release_name(name)] = np.ascontiguousarray(array.T[None] if linear else array)
    return tensors


def write_gpt2(model: Transformer, folder: Path, **layout: int) -> None:
    config = model.config
    sizes = {"n_vocab": config.vocabulary, "n_ctx": config.context, "n_embd": config.width}
    (folder / "hparams.json").write_text(json.dumps(sizes | {"n_head": config.heads, "n_layer": config.layers}))
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt"\n')
    write_bundle(gpt2_tensors(model), folder / "model.ckpt", **layout)


def write_gpt1(model: Transformer, folder: Path) -> None:
    names = ["positions.weight", "tokens.weight"]
    names += [f"blocks.{layer}.{name}" for layer in range(model.config.layers) for name in _BLOCK]
    arrays = []
    for name in names:
        array = model.state_dict()[name].numpy()
        arrays.append(array.T[None] if array.ndim == 2 and name.startswith("blocks.") else array)
    (folder / "params_shapes.json").write_text(json.dumps([list(array.shape) for array in arrays]))
    flat = np.concatenate([array.ravel() for array in arrays])
    for index, part in enumerate(np.array_split(flat, 10)):
        np.save(folder / f"params_{index}.npy", part)


@pytest.fixture
def narrow_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small releases of these tests have heads of 4 dimensions."""
    monkeypatch.setattr(openai, "_HEAD_WIDTH", 4)


def small_gpt2() -> Transformer:
    return build_model(preset("gpt2-pico", vocabulary=30, context=7, width=8), seed=4).eval()


@pytest.mark.usefixtures("narrow_heads")
@pytest.mark.parametrize("kind", ["gpt1", "gpt2"])
def test_the_original_programs_logits_hidden_states_and_cache(kind: str, golden_data: Path) -> None:
    folder = golden_data / "golden" / f"{kind}-release-toy"
    model = read_gpt1(folder) if kind == "gpt1" else read_gpt2(folder)
    expected = {name: torch.from_numpy(array) for name, array in np.load(folder / "expected.npz").items()}
    ids = expected["ids"]
    with torch.no_grad():
        logits = model(ids)
        torch.testing.assert_close(logits[..., ::37], expected["logits"], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(logits[:, -1], expected["logits_last"], atol=1e-5, rtol=1e-5)
        if kind == "gpt1":
            x = model.tokens(ids) + model.positions.weight[: ids.shape[1]]
            states = [x]
            for block in model.blocks:
                states.append(block(states[-1]))
            torch.testing.assert_close(torch.stack(states), expected["hidden"], atol=1e-5, rtol=1e-5)
            return
        fused: list[torch.Tensor] = []
        for block in model.blocks:
            block.attention.query_key_value.register_forward_hook(lambda *given: fused.append(given[-1]))
        model.hidden(ids)
        heads = [part.view(*ids.shape, 3, model.config.heads, -1)[:, :, 1:] for part in fused]
        present = torch.stack(heads, 1).permute(0, 1, 3, 4, 2, 5)  # (batch, layer, 2, head, time, head_dim)
        torch.testing.assert_close(present, expected["present"], atol=1e-5, rtol=1e-5)


@given(shards=st.integers(1, 3), in_block=st.integers(1, 9), heads=st.sampled_from([1, 2, 4]))
@settings(max_examples=12, deadline=None)
def test_a_written_gpt2_release_reads_back(
    shards: int, in_block: int, heads: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("release")
    model = build_model(
        preset("gpt2-pico", vocabulary=300, context=9, width=8, heads=heads, init_deviation=0.02), seed=heads
    ).eval()
    write_gpt2(model, folder, shards=shards, in_block=in_block)
    again = read_gpt2(folder)
    assert again.config == model.config.of_others()
    for name, parameter in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], parameter), name


def test_a_folder_of_two_checkpoints_is_refused(tmp_path: Path) -> None:
    write_gpt2(small_gpt2(), tmp_path)
    write_bundle(gpt2_tensors(small_gpt2()), tmp_path / "model-2")
    assert "has 2 checkpoints (*.index); expected one" in str(refusal(tmp_path))


def test_half_precision_checkpoints_are_refused(tmp_path: Path) -> None:
    model = small_gpt2()
    write_gpt2(model, tmp_path)
    tensors = {name: array.astype(np.float16) for name, array in gpt2_tensors(model).items()}
    write_bundle(tensors, tmp_path / "model.ckpt")
    assert "is not a tensor of float32" in str(refusal(tmp_path))


@pytest.mark.parametrize("width", [64, 192])
def test_a_written_gpt1_release_reads_back(width: int, tmp_path: Path) -> None:
    config = preset("gpt1-nano", vocabulary=31, context=9, width=width, heads=width // 64, init_deviation=0.02)
    model = build_model(config, seed=width).eval()
    write_gpt1(model, tmp_path)
    again = read_gpt1(tmp_path)
    assert again.config == config.of_others()
    for name, parameter in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], parameter), name


def test_the_shapes_of_the_released_gpt1_make_its_model(golden_data: Path) -> None:
    shapes = json.loads((golden_data / "tokenizers/gpt1/params_shapes.json").read_text())
    assert sum(math.prod(shape) for shape in shapes) == 116_534_784
    parameters = build_model(preset("gpt1"), device="meta").parameters()
    assert sum(p.numel() for p in parameters) == 116_534_784


def refusal(folder: Path) -> HeadwaterError:
    with pytest.raises(HeadwaterError) as caught:
        (read_gpt2 if (folder / "hparams.json").exists() else read_gpt1)(folder)
    return caught.value


def test_damage_to_a_gpt2_release_is_named(tmp_path: Path) -> None:
    model = small_gpt2()
    write_gpt2(model, tmp_path)
    shard, index = tmp_path / "model.ckpt.data-00000-of-00001", tmp_path / "model.ckpt.index"
    good_shard, good_index = shard.read_bytes(), index.read_bytes()
    refused = 0
    for place in range(0, len(good_index), 7):  # a byte that is read is refused; others decide nothing
        index.write_bytes(good_index[:place] + bytes([good_index[place] ^ 4]) + good_index[place + 1 :])
        try:
            assert torch.equal(read_gpt2(tmp_path).tokens.weight, model.tokens.weight)
        except HeadwaterError:
            refused += 1
    assert refused > 0.9 * (len(good_index) - 48) / 7
    index.write_bytes(good_index[:-100])
    assert "cut short or damaged" in str(refusal(tmp_path))
    index.write_bytes(good_index)
    shard.write_bytes(good_shard[:100] + bytes([good_shard[100] ^ 1]) + good_shard[101:])
    assert "the checksum of model/h0/attn/" in str(refusal(tmp_path))
    shard.write_bytes(good_shard[:-1])
    assert "model/wte is truncated" in str(refusal(tmp_path))
    shard.unlink()
    assert "data-00000-of-00001 is missing" in str(refusal(tmp_path))


def test_an_index_that_repeats_one_block_is_refused(tmp_path: Path) -> None:
    block = table_block([(b"%04d" % number, bytes(100)) for number in range(100)])
    handle = varint(0) + varint(len(block) - 5)
    top = table_block([(b"%04d" % number, handle) for number in range(50)])
    place = varint(len(block)) + varint(len(top) - 5)
    footer = (place + place).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    (tmp_path / "m.index").write_bytes(block + top + footer)
    with pytest.raises(FolderError, match="its table cannot be read"):
        TensorBundle(tmp_path / "m")


def test_a_compressed_index_is_refused(tmp_path: Path) -> None:
    block = table_block([(b"", number(1, 1))], compression=1)
    place = varint(0) + varint(len(block) - 5)
    footer = (place + place).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    (tmp_path / "m.index").write_bytes(block + footer)
    with pytest.raises(FolderError, match="a block is compressed, which TensorFlow never does"):
        TensorBundle(tmp_path / "m")


def test_what_does_not_fit_a_gpt2_release_is_named(tmp_path: Path) -> None:
    model = small_gpt2()
    write_gpt2(model, tmp_path)
    tensors = gpt2_tensors(model)
    write_bundle({n: t for n, t in tensors.items() if n != "model/wpe"}, tmp_path / "model.ckpt")
    assert "lacks model/wpe" in str(refusal(tmp_path))
    write_bundle(tensors | {"extra": np.zeros(3, np.float32)}, tmp_path / "model.ckpt")
    assert "has extra" in str(refusal(tmp_path))
    write_bundle(tensors | {"model/wte": np.zeros((31, 8), np.float32)}, tmp_path / "model.ckpt")
    assert "model/wte" in str(refusal(tmp_path))
    assert "(31, 8)" in str(refusal(tmp_path))
    write_bundle(tensors | {"model/wte": np.full((30, 8), np.nan, np.float32)}, tmp_path / "model.ckpt")
    assert "has NaN" in str(refusal(tmp_path))
    hparams = json.loads((tmp_path / "hparams.json").read_text())
    for wrong in ("30", 30.5, None, -1, [30]):
        (tmp_path / "hparams.json").write_text(json.dumps(hparams | {"n_vocab": wrong}))
        assert f"hparams.json has n_vocab = '{wrong}'" in str(refusal(tmp_path))
    (tmp_path / "hparams.json").write_text('{"n_vocab": 30}')
    assert "has n_ctx = 'None'" in str(refusal(tmp_path))


def test_what_does_not_fit_a_gpt1_release_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gpt1(build_model(preset("gpt1-nano", vocabulary=31, width=12, heads=2), seed=1), tmp_path)
    assert "has the width 12; expected a multiple of 64" in str(refusal(tmp_path))
    monkeypatch.setattr(openai, "_HEAD_WIDTH", 4)
    part = tmp_path / "params_3.npy"
    good = part.read_bytes()
    part.write_bytes(good[:-50])
    with pytest.raises(FolderError, match=r"params_3.npy is cut short or damaged"):
        read_gpt1(tmp_path)
    part.write_bytes(good)
    shapes = tmp_path / "params_shapes.json"
    whole = shapes.read_text()
    shapes.write_text(whole.replace("[1, 12, 36]", "[1, 36, 12]"))
    message = r"the shape \(12, 36\); expected \(36, 12\) for the width 12 in params_shapes.json"
    with pytest.raises(DataError, match=message):
        read_gpt1(tmp_path)
    shapes.write_text(whole)
    (tmp_path / "params_9.npy").unlink()
    with pytest.raises(FolderError, match=r"as params_shapes.json says"):
        read_gpt1(tmp_path)
    np.save(part, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(HeadwaterError, match=r"params_3.npy"):
        read_gpt1(tmp_path)
    (tmp_path / "params_shapes.json").write_text("[[3, 4]]")
    with pytest.raises(DataError, match="lists 1 shapes"):
        read_gpt1(tmp_path)
