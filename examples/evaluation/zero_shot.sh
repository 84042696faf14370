# What is there, and what is missing and where it is had.
headwater evaluate --list --data "$HEADWATER_DATA"
# All of LAMBADA's readings and GPT-1's definite pronouns; interrupted, the same command goes on.
headwater evaluate --model runs/small/model --tasks lambada,dprd --data "$HEADWATER_DATA" --out zero-shot-small
# Windows that advance by 32 tokens, and the score without what stands in the training corpus.
headwater evaluate --model runs/small/model --tasks wikitext-2 --data "$HEADWATER_DATA" \
    --set stride=32 --overlap corpus --out wikitext-small
# Two models on the same examples: differences with intervals.
headwater evaluate --model runs/other/model --tasks lambada,dprd --data "$HEADWATER_DATA" --out zero-shot-other
headwater evaluate --compare zero-shot-small zero-shot-other
headwater report runs/small zero-shot-small wikitext-small --out report.html
