from .attention import attend, attention_weights, padding_mask
from .backend import Backend, default_backend
from .config import PRESETS, Architecture, Faithful, Model, ModelConfig, architecture_of, build_model, preset
from .io.folder import load_config, load_model, model_reader, save_description, save_model
from .io.single import gguf_name
from .io.weights import read_tensors, require_cast
from .loss import IGNORE, cross_entropy, workspace_bytes
from .lstm import LSTM, Recurrent
from .transformer import Block, Linear, Transformer

__all__ = [
    "IGNORE",
    "LSTM",
    "PRESETS",
    "Architecture",
    "Backend",
    "Block",
    "Faithful",
    "Linear",
    "Model",
    "ModelConfig",
    "Recurrent",
    "Transformer",
    "architecture_of",
    "attend",
    "attention_weights",
    "build_model",
    "cross_entropy",
    "default_backend",
    "gguf_name",
    "load_config",
    "load_model",
    "model_reader",
    "padding_mask",
    "preset",
    "read_tensors",
    "require_cast",
    "save_description",
    "save_model",
    "workspace_bytes",
]
