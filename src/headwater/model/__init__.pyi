from .attention import attend, attention_weights, padding_mask
from .backend import Backend, default_backend
from .config import (
    PAPER_RATE,
    PRESETS,
    Architecture,
    Faithful,
    Model,
    ModelConfig,
    architecture_of,
    build_model,
    preset,
)
from .io.folder import is_untrained, load_config, load_model, model_reader, save_description, save_model
from .io.huggingface import tensor_names
from .io.weights import read_state, read_tensors, require_cast
from .loss import IGNORE, cross_entropy, project, with_own_code, workspace_bytes
from .transformer import Block, Embedding, Embeddings, Extensible, Linear, Transformer, token_rows

__all__ = [
    "IGNORE",
    "PAPER_RATE",
    "PRESETS",
    "Architecture",
    "Backend",
    "Block",
    "Embedding",
    "Embeddings",
    "Extensible",
    "Faithful",
    "Linear",
    "Model",
    "ModelConfig",
    "Transformer",
    "architecture_of",
    "attend",
    "attention_weights",
    "build_model",
    "cross_entropy",
    "default_backend",
    "is_untrained",
    "load_config",
    "load_model",
    "model_reader",
    "padding_mask",
    "preset",
    "project",
    "read_state",
    "read_tensors",
    "require_cast",
    "save_description",
    "save_model",
    "tensor_names",
    "token_rows",
    "with_own_code",
    "workspace_bytes",
]
