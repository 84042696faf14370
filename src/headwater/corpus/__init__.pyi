from .build.pipeline import build_corpus, prepare_slurm, read_funnel
from .build.recipes import BuildConfig, load_recipe, make_steps
from .build.tasks import Account, open_source, read_task
from .dedup.near import MinHash, ShingleFiles, find_duplicates, jaccard, write_shingles
from .dedup.overlap import BOUND, WORDS, TrainingGrams, measure_overlap, split_words, texts_of, training_grams
from .division import Part, check_fraction, split
from .extract.page_text import ExtractorName, extract_page
from .filters.decontaminate import Decontaminate
from .filters.language import LANGUAGES, MINIMUM_SCORE, Language
from .filters.steps import Funnel, Step, run_steps
from .filters.wikipedia import Wikipedia
from .folder import Document, measure, read_documents, shard_paths, write_documents
from .measures import statistics
from .ordering import rank
from .sources.pages import Page, read_pages
from .web.fetch import fetch_links
from .web.fetch_config import FetchConfig
from .web.links import LinksConfig, gather_links

__all__ = [
    "BOUND",
    "LANGUAGES",
    "MINIMUM_SCORE",
    "WORDS",
    "Account",
    "BuildConfig",
    "Decontaminate",
    "Document",
    "ExtractorName",
    "FetchConfig",
    "Funnel",
    "Language",
    "LinksConfig",
    "MinHash",
    "Page",
    "Part",
    "ShingleFiles",
    "Step",
    "TrainingGrams",
    "Wikipedia",
    "build_corpus",
    "check_fraction",
    "extract_page",
    "fetch_links",
    "find_duplicates",
    "gather_links",
    "jaccard",
    "load_recipe",
    "make_steps",
    "measure",
    "measure_overlap",
    "open_source",
    "prepare_slurm",
    "rank",
    "read_documents",
    "read_funnel",
    "read_pages",
    "read_task",
    "run_steps",
    "shard_paths",
    "split",
    "split_words",
    "statistics",
    "texts_of",
    "training_grams",
    "write_documents",
    "write_shingles",
]
