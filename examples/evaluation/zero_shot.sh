# List the protocols: which files are there, and where to download the others.
headwater evaluate --list --data "$HEADWATER_DATA"
# All readings of LAMBADA. If interrupted, the same command resumes.
headwater evaluate --model runs/small/model --tasks lambada --data "$HEADWATER_DATA" --out zero-shot-small
# Windows that advance by 32 tokens, and a second score without what occurs in the training corpus.
headwater evaluate --model runs/small/model --tasks wikitext-2 --data "$HEADWATER_DATA" \
    --set stride=32 --overlap corpus --out wikitext-small
# Two models on the same examples: their differences with intervals.
headwater evaluate --model runs/other/model --tasks lambada --data "$HEADWATER_DATA" --out zero-shot-other
headwater evaluate --compare zero-shot-small zero-shot-other
headwater report runs/small zero-shot-small wikitext-small --out report.html
