"""Fetch sets by name from the Hugging Face hub as Parquet, and store them as JSON Lines.

Only `headwater finetune-sets … --download` uses this, and with it the network. Nothing that is fetched is
executed. Story Cloze is not on the hub; its authors send it on request.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from headwater.errors import DataError, HeadwaterError, ResourceError, require_extra
from headwater.storage import SILENT, Progress, atomic_write, storage_errors, to_json
from headwater_papers.task_sets.benchmarks import HubSet
from headwater_papers.task_sets.readers import letter_index


def file_name(part: str) -> str:
    """Return the file name of a fetched part in the set's folder."""
    return f"hub-{part}.jsonl"


def fetch(described: HubSet, folder: Path, progress: Progress = SILENT) -> None:
    """Fetch the missing parts of a set into `folder`.

    Raises ResourceError without the package or the network, DataError for an unexpected repository.
    """
    with require_extra("hub", "fetching data sets"):
        import huggingface_hub
    missing = {part: place for part, place in described.parts.items() if not (folder / file_name(part)).is_file()}
    if not missing:
        return
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        listed = huggingface_hub.HfApi().list_repo_files(described.repository, repo_type="dataset")
        for part, place in sorted(missing.items(), key=lambda item: item[0] == "train"):
            # Training rows last: a set with training rows counts as complete.
            shards = sorted(file for file in listed if fnmatch(file, f"{place}-*.parquet"))
            if not shards:
                raise DataError(f"{described.repository} has no {place}-*.parquet", expected="its Parquet files")
            progress.note(f"fetching {described.repository} {place}")
            paths = [
                Path(huggingface_hub.hf_hub_download(described.repository, shard, repo_type="dataset"))
                for shard in shards
            ]
            _write(described, paths, folder / file_name(part))
    except HeadwaterError:
        raise
    except Exception as error:  # the client's exceptions depend on its version and HTTP library
        raise ResourceError(
            f"{described.repository} could not be fetched: {error}",
            repair=f"Check the network, or put the set's own files into {folder}",
        ) from None


def _write(described: HubSet, paths: list[Path], target: Path) -> None:
    import pyarrow.parquet as pq

    with atomic_write(target) as handle:
        for path in paths:
            for batch in pq.ParquetFile(path).iter_batches():
                for row in batch.to_pylist():
                    entry = {"segments": _segments(described, row), "label": _label(described, row)}
                    handle.write(to_json(entry))


def _segments(described: HubSet, row: Mapping[str, Any]) -> list[str]:
    segments: list[str] = []
    for column in described.texts:
        value = row[column]
        segments += value if isinstance(value, list) else [value]
    return segments


def _label(described: HubSet, row: Mapping[str, Any]) -> str | int | float | None:
    """Return the label in the set's own words; None if it is hidden (-1) or annotators did not agree."""
    label = row.get(described.label)
    if label is None or label == -1:
        return None
    if described.names:
        return described.names[label]
    if described.label == "answer":
        return letter_index(label, 4)
    return label
