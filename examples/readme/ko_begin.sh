pip install ".[serve]"
headwater quickstart                        # 4분 동안 학습하고 quickstart/report.html을 만듭니다
headwater serve --model quickstart/run      # http://127.0.0.1:8000 에 페이지와 OpenAI 호환 API가 열립니다
