headwater predict --model packages quickstart/labels/source/validation.jsonl --out sure.csv --threshold 0.8
head -3 sure.csv
