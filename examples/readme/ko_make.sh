make quickstart   # 이 컴퓨터에서 GPT-2를 학습하고 생성 예문, 점수, 보고서까지 몇 분 만에
make test         # 테스트
