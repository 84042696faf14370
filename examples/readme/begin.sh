pip install ".[serve]"
headwater quickstart                        # trains for four minutes, and writes quickstart/report.html
headwater serve --model quickstart/run      # a page and an OpenAI-compatible API at http://127.0.0.1:8000
