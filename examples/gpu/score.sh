headwater evaluate --model run/model --tasks hellaswag.lm-eval.per-character --data data --out results --device cuda
