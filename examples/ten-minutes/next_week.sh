python3 - <<'END'
from pathlib import Path

old, new = (Path(name).read_text(encoding="utf-8").splitlines() for name in ("reviews.csv", "this-week.csv"))
Path("all-reviews.csv").write_text("\n".join([*old, *new[1:]]) + "\n", encoding="utf-8")
END
headwater predict --model reviews this-week.csv --out before.csv   # the old model, on rows it has not seen
headwater finetune --model gpt2-mini --task classify --train all-reviews.csv --text review --label stars \
    --out reviews-2
