"""Every configuration that transformers computes gives its logits here, and its folder opens there again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from headwater.errors import DataError
from headwater.inference.backends import open_network
from headwater.inference.scorer import logits_of
from headwater.model import ModelConfig, load_model, save_model
from headwater.model.config import ACTIVATIONS

transformers = pytest.importorskip("transformers")

ROWS = {"vocab_size": 61}
GPT = {"n_embd": 24, "n_layer": 3, "n_head": 3, "n_positions": 20, "initializer_range": 0.3} | ROWS
BERT = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "max_position_embeddings": 20,
    "intermediate_size": 96,
    "initializer_range": 0.3,
} | ROWS
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", {"n_inner": 40}),
    ("gpt2", {"scale_attn_weights": False}),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False, "n_inner": 96}),
    ("gpt2", {"reorder_and_upcast_attn": True}),
    ("gpt2", {"tie_word_embeddings": False}),
    ("gpt2", {"layer_norm_epsilon": 1e-3, "attn_pdrop": 0.0, "embd_pdrop": 0.3, "resid_pdrop": 0.2}),
    ("openai-gpt", {"afn": "relu"}),
    ("openai-gpt", {"afn": "silu"}),
    ("openai-gpt", {"tie_word_embeddings": False, "layer_norm_epsilon": 1e-6}),
    ("bert", {"intermediate_size": 40, "hidden_act": "relu", "layer_norm_eps": 1e-3}),
    ("bert", {"tie_word_embeddings": False, "type_vocab_size": 3}),
    ("bert", {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.2}),
]
DROPOUTS = {
    "gpt2": ("embd_pdrop", "attn_pdrop", "resid_pdrop"),
    "openai-gpt": ("embd_pdrop", "attn_pdrop", "resid_pdrop"),
    "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob", "hidden_dropout_prob"),
}
CLASSES = {"gpt2": "GPT2LMHeadModel", "openai-gpt": "OpenAIGPTLMHeadModel", "bert": "BertForMaskedLM"}


def their_model(kind: str, changes: dict[str, Any]) -> Any:
    torch.manual_seed(5)
    model = getattr(transformers, CLASSES[kind])._from_config(
        transformers.AutoConfig.for_model(kind, **((BERT if kind == "bert" else GPT) | changes))
    )
    with torch.no_grad():  # biases and norms that are not 0 and 1
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def assert_same_logits(theirs: Any, folder: Path) -> None:
    ids = torch.randint(0, 61, (2, 20), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = theirs(ids).logits
        model = load_model(folder)
        assert (model(ids) - expected).abs().max() <= 1e-4
        if model.config.is_causal:
            assert (logits_of(open_network(model), ids) - expected).abs().max() <= 1e-4


@pytest.mark.parametrize(("kind", "changes"), VARIANTS, ids=lambda value: str(value)[:60])
def test_a_configuration_gives_the_logits_of_transformers(
    kind: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    theirs = their_model(kind, changes)
    theirs.save_pretrained(tmp_path / "theirs")
    assert_same_logits(theirs, tmp_path / "theirs")
    (tmp_path / "ours").mkdir()
    save_model(load_model(tmp_path / "theirs"), tmp_path / "ours")
    assert_same_logits(getattr(transformers, CLASSES[kind]).from_pretrained(tmp_path / "ours"), tmp_path / "ours")


@pytest.mark.parametrize("kind", DROPOUTS)
def test_each_dropout_of_a_configuration_acts_in_training(kind: str, tmp_path: Path) -> None:
    names = dict(zip(DROPOUTS[kind], (0.1, 0.2, 0.3), strict=True))
    their_model(kind, names).save_pretrained(tmp_path)
    model = load_model(tmp_path)
    expected = (names[DROPOUTS[kind][0]], 0.2, 0.3)
    assert (
        model.embedding_dropout.p,
        model.blocks[0].attention.dropout,
        model.blocks[0].residual_dropout.p,
    ) == expected
    save_model(model, tmp_path)
    assert {key: json.loads((tmp_path / "config.json").read_text())[key] for key in names} == names
    assert load_model(tmp_path).config == model.config


def test_the_other_names_of_a_configurations_keys_are_read(tmp_path: Path) -> None:
    theirs = their_model("gpt2", {})
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    names = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}
    for key, other in (names | {"n_positions": "max_position_embeddings"}).items():
        config[other] = config.pop(key)
    (tmp_path / "config.json").write_text(json.dumps(config))
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert_same_logits(again, tmp_path)


HEADS = [
    *("BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForQuestionAnswering"),
    *("BertForTokenClassification", "BertForMultipleChoice", "BertForNextSentencePrediction"),
    *("GPT2Model", "GPT2ForQuestionAnswering", "GPT2DoubleHeadsModel", "GPT2ForTokenClassification"),
    "OpenAIGPTModel",
]


@pytest.mark.parametrize("name", HEADS)
def test_a_base_is_read_from_any_class_and_without_its_name(name: str, tmp_path: Path) -> None:
    kind = {"B": "bert", "G": "gpt2", "O": "openai-gpt"}[name[0]]
    torch.manual_seed(5)
    shape = BERT if kind == "bert" else GPT
    getattr(transformers, name)(transformers.AutoConfig.for_model(kind, **shape)).save_pretrained(tmp_path)
    ids = torch.randint(0, 61, (2, 20), generator=torch.Generator().manual_seed(1))
    for named in (True, False):
        if not named:
            config = json.loads((tmp_path / "config.json").read_text())
            del config["architectures"]
            (tmp_path / "config.json").write_text(json.dumps(config))
        theirs = transformers.AutoModel.from_pretrained(tmp_path).eval()
        model = load_model(tmp_path)
        assert model.config.predicts_tokens == (
            kind != "bert" or name in ("BertForMaskedLM", "BertForPreTraining")
        )
        with torch.inference_mode():
            assert (model.hidden(ids) - theirs(ids).last_hidden_state).abs().max() <= 1e-4


def test_a_file_with_two_different_tied_matrices_is_refused(tmp_path: Path) -> None:
    for kind in ("gpt2", "bert"):
        their_model(kind, {"tie_word_embeddings": False}).save_pretrained(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text()) | {"tie_word_embeddings": True}
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(DataError, match=r"differs from .*tie_word_embeddings"):
            load_model(tmp_path)


def test_each_activation_equals_transformers(tmp_path: Path) -> None:
    theirs_of = {"gelu-tanh": "gelu_new"}
    for ours in ACTIVATIONS:
        name = theirs_of.get(ours, ours.replace("-", "_"))
        theirs = their_model("gpt2", {"activation_function": name, "n_layer": 1})
        theirs.save_pretrained(tmp_path / name)
        assert_same_logits(theirs, tmp_path / name)


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"activation_function": "prelu"}, "prelu"), ({"add_cross_attention": True}, "add_cross_attention")],
)
def test_what_cannot_be_computed_is_refused_by_name(changes: dict[str, Any], named: str, tmp_path: Path) -> None:
    their_model("gpt2", {}).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match=named):
        load_model(tmp_path)


def test_added_rows_of_an_untied_model_are_in_both_matrices(tmp_path: Path) -> None:
    their_model("gpt2", {"tie_word_embeddings": False}).save_pretrained(tmp_path)
    model = load_model(tmp_path)
    model.add_rows(3, seed=1)
    assert model(torch.tensor([[63]])).shape == (1, 1, 64)
    assert model.config == ModelConfig.build(model.config.to_dict())
