from .attention import Mask, attend, attention_weights, document_blocks, document_mask, padding_mask
from .backend import TORCH, Backend, backend_of, default_backend, use_backend
from .bilstm import reversal
from .build import Model, build_model, count_parameters
from .config import FAITHFUL, PRESETS, Faithful, ModelConfig, preset, require_preset
from .digest import fingerprint
from .io.bert import OUTPUT
from .io.folder import CONFIG, load_config, load_model, model_reader, require_rows, save_description, save_model
from .io.huggingface import model_type
from .io.weights import WEIGHTS, check_finite, find_tensors, require_cast, tensor_sizes, write_tensors
from .loss import IGNORE, cross_entropy, cross_entropy_plainly, workspace_bytes
from .lstm import LSTM, recur
from .rows import add_rows
from .transformer import Block, Embeddings, Linear, Transformer

__all__ = [
    "CONFIG",
    "FAITHFUL",
    "IGNORE",
    "LSTM",
    "OUTPUT",
    "PRESETS",
    "TORCH",
    "WEIGHTS",
    "Backend",
    "Block",
    "Embeddings",
    "Faithful",
    "Linear",
    "Mask",
    "Model",
    "ModelConfig",
    "Transformer",
    "add_rows",
    "attend",
    "attention_weights",
    "backend_of",
    "build_model",
    "check_finite",
    "count_parameters",
    "cross_entropy",
    "cross_entropy_plainly",
    "default_backend",
    "document_blocks",
    "document_mask",
    "find_tensors",
    "fingerprint",
    "load_config",
    "load_model",
    "model_reader",
    "model_type",
    "padding_mask",
    "preset",
    "recur",
    "require_cast",
    "require_preset",
    "require_rows",
    "reversal",
    "save_description",
    "save_model",
    "tensor_sizes",
    "use_backend",
    "workspace_bytes",
    "write_tensors",
]
