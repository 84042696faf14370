from .building.pipeline import build_corpus, read_funnel
from .building.recipes import BuildConfig, load_recipe, make_steps
from .dedup.overlap import TrainingGrams, measure_overlap, split_words, texts_of, training_grams
from .division import Division, Part, split
from .extract.page_text import extract_page
from .filters import Step
from .folder import Document, rank, read_documents, write_documents
from .measures import statistics
from .sources.pages import Page, read_pages
from .task_workers import TaskRunner, parts_folder, remove_parts
from .web.fetch import FetchConfig, fetch_links
from .web.links import LinksConfig, gather_links

__all__ = [
    "BuildConfig",
    "Division",
    "Document",
    "FetchConfig",
    "LinksConfig",
    "Page",
    "Part",
    "Step",
    "TaskRunner",
    "TrainingGrams",
    "build_corpus",
    "extract_page",
    "fetch_links",
    "gather_links",
    "load_recipe",
    "make_steps",
    "measure_overlap",
    "parts_folder",
    "rank",
    "read_documents",
    "read_funnel",
    "read_pages",
    "remove_parts",
    "split",
    "split_words",
    "statistics",
    "texts_of",
    "training_grams",
    "write_documents",
]
