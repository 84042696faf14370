headwater quickstart                                      # 이 컴퓨터에 있는 글로 4분 동안 학습합니다
headwater quickstart 내_글/ --minutes 20 --out 내_모델    # 내 글로 학습합니다
