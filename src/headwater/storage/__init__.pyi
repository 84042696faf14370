from .ancestry import lineage
from .files import (
    atomic_path,
    atomic_write,
    new_file,
    require_absent,
    require_space,
    save_array,
    storage_errors,
    to_json,
    write_json,
    write_json_lines,
    write_text,
)
from .lock import folder_lock
from .progress import INTERACTIVE, SILENT, PlainProgress, Progress, say
from .provenance import (
    QUICKSTART,
    QUICKSTART_REPORT,
    Input,
    Manifest,
    folder_files,
    has_manifest,
    identity_of,
    open_folder,
    read_manifest,
    user_files,
)
from .remote import download, is_url
from .resources import available_resources, cache_folder, data_folder, find_resource
from .stage import Stage

__all__ = [
    "INTERACTIVE",
    "QUICKSTART",
    "QUICKSTART_REPORT",
    "SILENT",
    "Input",
    "Manifest",
    "PlainProgress",
    "Progress",
    "Stage",
    "atomic_path",
    "atomic_write",
    "available_resources",
    "cache_folder",
    "data_folder",
    "download",
    "find_resource",
    "folder_files",
    "folder_lock",
    "has_manifest",
    "identity_of",
    "is_url",
    "lineage",
    "new_file",
    "open_folder",
    "read_manifest",
    "require_absent",
    "require_space",
    "save_array",
    "say",
    "storage_errors",
    "to_json",
    "user_files",
    "write_json",
    "write_json_lines",
    "write_text",
]
