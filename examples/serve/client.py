from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="not needed on this machine")
for chunk in client.completions.create(model="rivers", prompt="Return the", max_tokens=20, seed=1, stream=True):
    print(chunk.choices[0].text, end="", flush=True)
print()
client.close()
