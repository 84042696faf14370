headwater evaluate --model run/model --tasks hellaswag.llm-c.mean --data data --out results --device cuda
