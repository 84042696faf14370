python3 - <<'END'
from pathlib import Path

지금까지, 이번_주 = (Path(이름).read_text(encoding="utf-8").splitlines() for 이름 in ("후기.csv", "이번_주.csv"))
Path("전체_후기.csv").write_text("\n".join([*지금까지, *이번_주[1:]]) + "\n", encoding="utf-8")
END
headwater predict --model 분류기 이번_주.csv --out 지난_모델.csv   # 지난 모델이 처음 보는 행을 맞히는지 봅니다
headwater finetune --model gpt2-mini-ko --task classify --train 전체_후기.csv --text 글 --label 라벨 --out 분류기_2
