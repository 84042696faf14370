"""Use `headwater serve` with the `openai` package. HEADWATER_URL is the address of the server."""

import os

from openai import OpenAI

url = os.environ.get("HEADWATER_URL", "http://127.0.0.1:8000")
with OpenAI(base_url=f"{url}/v1", api_key="not needed on this machine") as client:
    model = next(iter(client.models.list())).id
    for chunk in client.completions.create(model=model, prompt="The river", max_tokens=20, seed=1, stream=True):
        print(chunk.choices[0].text, end="", flush=True)
    scored = client.completions.create(model=model, prompt="The river runs", max_tokens=0, echo=True, logprobs=3)
    print()
    print(scored.choices[0].logprobs.token_logprobs)
