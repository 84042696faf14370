"""English function words, which the filter of LAMBADA leaves out (GPT-2, Radford et al. 2019, section 3.3)."""

from __future__ import annotations

# Function words of English: pronouns, determiners, prepositions, conjunctions, auxiliaries, and similar particles
# and adverbs. The papers give no list; this one is written from the word classes.
_WORDS = """
I i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself
she her hers herself it its itself they them their theirs themselves one who whom whose which what
that this these those a an the some any no each every either neither both all few many more most
other another such own same of in on at by to from with without into onto upon about above below
over under after before during between among through against until till since for off out up down
near beside behind across along around and or but nor so yet if because as than while when where why
how whether though although unless am is are was were be been being have has had having do does did
doing will would shall should can could may might must ought not never only just very too also then
there here again once further now even still cannot
"""
_ALL = frozenset(_WORDS.split())
_ENDINGS = ("n't", "'s", "'t", "'d", "'ll", "'m", "'re", "'ve")
_FORMS = _ALL | {word + ending for word in ("", *_ALL) for ending in _ENDINGS}
_FORMS |= {"won't", "can't", "shan't", "ain't"}
_BEGINNINGS = {form[:end] for form in _FORMS for end in range(len(form) + 1)}


class FunctionWords:
    """The set of function words: `word in FUNCTION_WORDS`, also with a contraction ("don't", "she'll")."""

    def __contains__(self, word: str) -> bool:
        return word.replace("’", "'") in _FORMS

    def may_begin(self, text: str) -> bool:
        """Return whether a word that begins with this text of a token can be a function word."""
        return text.strip().replace("’", "'") in _BEGINNINGS


# The words that LAMBADA's stop-word filter excludes.
FUNCTION_WORDS = FunctionWords()
