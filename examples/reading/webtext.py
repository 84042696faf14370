"""WebText's steps on five links: karma, main text, Wikipedia, language, duplicates."""

import json
import tempfile
from pathlib import Path

from headwater.corpus import build_corpus, gather_links, load_recipe, read_documents, read_funnel

story = """<p>The mill stood by the river, and the miller knew every stone of it. When the rain came,
he opened the gate and let the water pass; that was the work of his father, and he had never asked
for another.</p><p>In the spring, the boys of the village came to fish there, and they stayed.</p>"""
korean = "<p>방앗간은 강가에 있었다. 비가 오면 주인은 수문을 열었다. 봄이면 아이들이 와서 물고기를 잡았다.</p>"
pages = {  # its karma, and what it says
    "mill": (5, f"<nav>Home | Login</nav><article>{story}</article><footer>© 2017</footer>"),
    "mill2": (9, f"<article>{story}</article>"),
    "encyclopedia": (4, f"<article><p>From Wikipedia, the free encyclopedia</p>{story}</article>"),
    "korean": (3, f"<article>{korean}</article>"),
    "unloved": (2, f"<article>{story}</article>"),
}
with tempfile.TemporaryDirectory() as folder:
    here, removed = Path(folder), {}
    common = {"created_utc": 1_400_000_000, "is_self": False}
    links = [{"url": f"http://{name}.org", "score": score, **common} for name, (score, _) in pages.items()]
    (here / "dump.jsonl").write_text("\n".join(map(json.dumps, links)), encoding="utf-8")
    for rule, urls in gather_links([here / "dump.jsonl"], here / "links")["examples"].items():
        print("removed", *urls, "-", rule)
    for name, (score, body) in pages.items():
        if score >= 3:
            page = f"<html><body>{body}</body></html>"
            (here / f"{name}.html").write_text(page, encoding="utf-8")
    build_corpus(sorted(here.glob("*.html")), here / "corpus", load_recipe("webtext"))
    funnel = read_funnel(here / "corpus")
    for step, rules in funnel["removed"].items():
        removed |= {f"{step}, {rule}": removal["examples"] for rule, removal in rules.items()}
    removed |= {f"duplicate, {kind}": examples for kind, examples in funnel["examples"].items()}
    for rule, examples in removed.items():
        for example in examples:
            print("removed", example["source"], "-", rule)
    for document in read_documents(here / "corpus"):
        print("kept", document.source, repr(document.text[:30]), "…", repr(document.text[-30:]))
