"""`hw.load`, and the object that it returns: a model with its tokenizer, to generate and score text.

The computation is in `inference`; this module has the defaults.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from headwater import shipped
from headwater.errors import FolderError, UsageError
from headwater.inference import masked
from headwater.inference.backends import choose_precision, open_network
from headwater.inference.embedding import MEAN, EmbeddingRule, text_vectors, unit
from headwater.inference.engine import Engine, Generation, text_pieces
from headwater.inference.network import Network, Precision
from headwater.inference.request import (
    GenerateOptions,
    Request,
    encode_prompts,
    require_ids,
)
from headwater.inference.scorer import Scorer, logits_of
from headwater.model import load_config, model_reader, save_model
from headwater.reading import compose, expand_home
from headwater.storage import Stage
from headwater.tokenizer import Tokenizer, missing_tokenizer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from headwater.model import Model


_LOG = logging.getLogger(__name__)


_DEFAULTS: GenerateOptions = {"temperature": 0.8, "top_k": 40, "seed": None}  # of `generate` and `stream`


def fresh_seed() -> int:
    """Return a random seed that is short enough to type."""
    return secrets.randbelow(1_000_000)


class LanguageModel:
    """A model and its tokenizer. Calls are thread-safe.

    All calls compute with one `network`: the weights at `precision`, as they were when it was first needed.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer | None,
        *,
        precision: Precision | str = "fp32",
        slots: int = 8,
        read: Callable[..., Model] | None = None,
        embedding: EmbeddingRule | None = None,
    ) -> None:
        """Join both. `read` reads the same model again, at a dtype if one is given.

        With it, the weights of `model` may be consumed.
        """
        if slots < 1:
            raise UsageError(f"{slots} slots", expected="at least 1")
        self.config, self._tokenizer, self.slots = model.config, tokenizer, slots
        self.precision = choose_precision(precision, model.config, model.tokens.weight.device)
        self._model: Model | None = model
        self._embedding = embedding or EmbeddingRule()
        self._read = read
        self._handed_out = read is None  # whether a caller may have the module, and change it
        self._lock = threading.RLock()
        self._network: Network | None = None
        self._scorer: Scorer | None = None
        self._engine: Engine | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; raises MismatchError for a model that was opened without one."""
        if self._tokenizer is None:
            raise missing_tokenizer("this model")
        return self._tokenizer

    @property
    def model(self) -> Model:
        """The module itself, which may be trained; another LanguageModel of it uses the new weights."""
        with self._lock:
            self._handed_out = True
            return self._whole_model()

    @property
    def network(self) -> Network:
        """The weights at `precision` that all calls compute with; see `inference.network`."""
        with self._lock:
            if self._network is None:
                model = self._whole_model()
                self.config = model.config
                self._network = open_network(model, self.precision, consume=not self._handed_out)
                if not self._handed_out:
                    self._model = None
            return self._network

    @property
    def scorer(self) -> Scorer:
        """Log-probabilities, logits and states: see `inference.scorer`; raises UsageError for a masked model."""
        with self._lock:
            network = self.network
            if self._scorer is None:
                self._scorer = Scorer(network, self.tokenizer)
            return self._scorer

    @property
    def engine(self) -> Engine:
        """Continuations: see `inference.engine`; raises UsageError for a masked model."""
        with self._lock:
            network = self.network
            if self._engine is None:
                self._engine = Engine(network.runner(self.slots), self.tokenizer)
            return self._engine

    def _whole_model(self) -> Model:
        """Return the module; read it again from its folder if its weights were consumed."""
        if self._model is None:
            assert self._read is not None
            self._model = self._read()
        return self._model

    @overload
    def generate(self, prompt: str, **options: Unpack[GenerateOptions]) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def generate(self, prompt: Sequence[str], **options: Unpack[GenerateOptions]) -> list[str]: ...

    def generate(self, prompt: str | Sequence[str], **options: Unpack[GenerateOptions]) -> str | list[str]:
        """Continue a prompt, or each of several; return the text after it.

        The same prompt, seed and options give the same text, alone or next to others. An empty prompt starts a
        new text, after `<|endoftext|>`.

        max_tokens: the most tokens to generate; None (the default) is 128, or what the context leaves.
        min_tokens (0): the fewest tokens to generate.
        temperature (0.8): lower is safer, higher more varied; 0 always takes the most probable token.
        top_k (40): choose among the k most probable tokens; 0, or more than there are, is all.
        top_p (1): choose among the most probable tokens whose probabilities add up to p.
        min_p (0): choose among the tokens with at least this share of the largest probability.
        repetition_penalty (1): above 1 makes tokens that occurred less probable.
        presence_penalty (0): is subtracted from the logits of generated tokens.
        frequency_penalty (0): is subtracted for each time that a token was generated.
        bias: what is added to the logits, by token id.
        stop: texts before which the continuation ends; stop_tokens: ids of such tokens.
        ignore_end (False): whether to continue after tokens that end a text.
        seed: the seed of the random choices; None (the default) is a new one at each call.
        sample (0): the index of the continuation among those of one prompt and seed.
        beyond_context ("refuse"): UsageError for more tokens than the context; "shift" drops its older half then.
        """
        options = _DEFAULTS | options
        requests = [self.request(text, **options) for text in ([prompt] if isinstance(prompt, str) else prompt)]
        self._warn_of_unknown([request.prompt for request in requests])
        engine = self.engine
        running: list[Generation] = []
        try:
            for request in requests:
                running.append(engine.submit(request))
            texts = [generation.wait().text for generation in running]
        except BaseException:
            engine.cancel(*running)  # also on Ctrl-C: later calls would compute them
            raise
        return texts[0] if isinstance(prompt, str) else texts

    def stream(self, prompt: str, **options: Unpack[GenerateOptions]) -> Iterator[str]:
        """Yield the text of `generate` with the same options, in pieces of whole characters.

        The continuation is queued by this call. Leaving the loop, or deleting the iterator, cancels it.
        """
        generation = self.submit(prompt, **(_DEFAULTS | options))
        pieces = text_pieces(generation)
        next(pieces)  # enter its `try`: closing a generator that was never started runs no `finally`
        return pieces

    def submit(self, prompt: str, **options: Unpack[GenerateOptions]) -> Generation:
        """Start a continuation; iterate over it for tokens, log-probabilities and text.

        The defaults are those of `inference.request` and `inference.sampling`: temperature 1, no filter, seed 0.
        """
        return self.engine.submit(self.request(prompt, **options))

    def request(self, prompt: str | Sequence[int], **options: Unpack[GenerateOptions]) -> Request:
        """Return the Request of a prompt, text or token ids; raise UsageError for a wrong option.

        Here as in other calls a text is composed, so that both forms of é have the same answers.
        """
        if isinstance(prompt, str):
            prompt = encode_prompts(self.tokenizer, [compose(prompt)])[0]
        if options.get("seed", 0) is None:
            options["seed"] = fresh_seed()
        stop = options.get("stop") or ()
        options["stop"] = tuple(map(compose, [stop] if isinstance(stop, str) else stop))
        return Request.build({"prompt": tuple(map(int, prompt)), **options}, source="the request")

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        """Return log P(continuation | context) of each pair, and whether the continuation is the greedy one."""
        encoded = self.scorer.encode_pairs([(compose(context), compose(rest)) for context, rest in pairs])
        self._warn_of_unknown([[*context, *continuation] for context, continuation in encoded])
        return self.scorer.score_ids(encoded)

    def fill(self, text: str, *, top: int = 5) -> list[list[tuple[str, float]]]:
        """Return, for each `[MASK]` in the text, the `top` most probable tokens as (text, probability).

        For masked models, as BERT. Raises UsageError for any other model and for a text without `[MASK]`.
        """
        ids = masked.framed(self.config, self.tokenizer, compose(text))
        with self._lock, masked.evaluated(self._whole_model()) as model:
            blanks = masked.fill(model, self.tokenizer, ids, top)
        return [[(candidate.text, candidate.probability) for candidate in blank] for blank in blanks]

    def embed(self, texts: str | Sequence[str], *, normalize: bool = False) -> npt.NDArray[np.float32]:
        """Return one vector a text, (texts, width) float32; of a single text (width,).

        The mean over the text's tokens of the model's last hidden states; for a folder of sentence-transformers,
        that library's vector. A longer text than the model reads is cut. normalize: bring vectors to length 1.
        """
        several = [texts] if isinstance(texts, str) else list(texts)
        encoded = self.encode_texts(several)
        if cut := sum(len(ids) > self.longest_text for ids in encoded):
            _LOG.warning(
                "left out: the ends of %d of %d texts, which are longer than the model reads", cut, len(several)
            )
        if empty := sum(not text.strip() for text in several):
            _LOG.warning("empty texts: %d of %d; each gets the vector of an empty text", empty, len(several))
        self._warn_of_unknown(encoded)
        vectors = self.embed_ids(encoded, normalize=normalize)
        return vectors[0] if isinstance(texts, str) else vectors

    @property
    def longest_text(self) -> int:
        """The most tokens of a text that `embed` reads, without `[CLS]` and `[SEP]`."""
        context, around = self.config.context, sum(map(len, self._frame))
        return max(0, min(self._embedding.most_tokens or context, context) - around)

    @property
    def _frame(self) -> tuple[list[int], list[int]]:
        """The tokens before and after a text."""
        return self.tokenizer.frame if self.config.is_masked else ([], [])

    def encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids that `embed` reads of each text, without `[CLS]` and `[SEP]`.

        An empty text is the token before a text, if the model reads none around it.
        """
        texts = [compose(text) for text in texts]
        if self._embedding.source is not None:
            texts = [text.strip() for text in texts]  # as sentence-transformers
        return (
            self.tokenizer.encode_batch(texts, None) if any(self._frame) else encode_prompts(self.tokenizer, texts)
        )

    def _warn_of_unknown(self, texts: Sequence[Sequence[int]]) -> None:
        """Warn of tokens for text that the vocabulary does not have, as the commands do."""
        if self._tokenizer is not None and (note := self._tokenizer.note_of_unknown(texts)):
            _LOG.warning(note)

    def embed_ids(self, texts: Sequence[list[int]], *, normalize: bool = False) -> npt.NDArray[np.float32]:
        """Return what `embed` returns for texts as token ids, without `[CLS]` and `[SEP]`."""
        rule, config = self._embedding, self.config
        (before, after), longest = self._frame, self.longest_text
        framed = [[*before, *ids[:longest], *after] for ids in texts]
        for ids in framed:
            require_ids(ids, config.vocabulary)
        if config.is_causal and rule.pooling == MEAN:
            rule.require_known()
            vectors = self.scorer.mean_states(framed)
        else:
            with self._lock, masked.evaluated(self._whole_model()) as model:
                vectors = text_vectors(model, framed, rule)
        return unit(vectors) if normalize or rule.normalize else vectors

    def logits(self, ids: Tensor) -> Tensor:
        """Return next-token logits: (batch, time) int64 -> (batch, time, vocabulary) float32."""
        import torch

        ids = torch.as_tensor(ids)
        if ids.dim() != 2 or ids.dtype != torch.int64:
            raise UsageError(
                f"ids have shape {tuple(ids.shape)} and dtype {ids.dtype}", expected="(batch, time) int64"
            )
        if not self.config.is_masked:
            return logits_of(self.network, ids)
        require_ids(ids.flatten().tolist(), self.config.vocabulary)
        with self._lock, masked.evaluated(self._whole_model()) as model, torch.inference_mode():
            return model(ids.to(model.tokens.weight.device))

    def save(self, folder: str | Path) -> None:
        """Write model and tokenizer as a new model folder, which transformers can open too.

        The weights are those of the folder that `load` opened, at any `precision`, or those of `model` if it was
        handed out. Raises FolderError if the folder is not empty.
        """
        stage = Stage(Path(expand_home(folder)), kind="model", config=self.config.to_dict(), inputs={})
        if stage.find() is not None:
            raise FolderError(f"{folder} already contains a model", repair="Choose another folder")
        with stage.write() as work, self._lock:
            import torch

            # The open module may be rounded to bfloat16.
            model = self._whole_model() if self._read is None or self._handed_out else self._read(torch.float32)
            save_model(model, work, tokenizer=self._tokenizer)
            self._embedding.copy_files(work)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the module, the tokenizer and the settings, so that a pickle does not need the folder."""
        with self._lock:
            join = partial(
                LanguageModel,
                precision=self.precision,
                slots=self.slots,
                embedding=self._embedding,
            )
            return join, (self._whole_model(), self._tokenizer)

    def __repr__(self) -> str:
        config = self.config
        return (
            f"LanguageModel({config.layers} layers × {config.width}, vocabulary {config.vocabulary:,}, "
            f"context {config.context:,}, {self.precision})"
        )


def load(
    model: str | Path,
    *,
    tokenizer: str | Path | None = None,
    precision: Precision | str = "fp32",
    device: str = "auto",
    slots: int = 8,
    download: bool = False,
) -> LanguageModel:
    """Open a model folder, Headwater's or Hugging Face's, a shipped model, or a hub name.

    tokenizer: a folder, "gpt2" or "gpt1", for a model folder without a tokenizer. Without one, only `logits`
    works; calls with text raise MismatchError.
    precision: "fp32", "bf16", "int8" (only weights) or "auto"; see `inference.backends`.
    device: "auto" (a GPU if available), "cpu", "cuda", "cuda:1" or "mps".
    slots: the number of continuations at the same time; each has a context of keys and values.
    download: download a hub name or a tokenizer that is not on this machine.

    Raises FolderError or DataError for a folder that is not a model, ResourceError for a hub name that is not
    available, MismatchError for a tokenizer that does not fit the model.
    """
    import torch

    from headwater.device import choose_device

    folder = shipped.resolve(model, download=download)
    chosen_device = choose_device(device, training=False)
    config = load_config(folder)
    precision = choose_precision(precision, config, chosen_device)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    read = model_reader(folder, dtype=dtype, device=chosen_device)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(Tokenizer.of_model, folder, config.vocabulary, tokenizer, download=download)
        opened = read()
    tokens = opening.result()
    rule = EmbeddingRule.read(folder)
    return LanguageModel(opened, tokens, precision=precision, slots=slots, read=read, embedding=rule)
