headwater predict --model packages quickstart/labels/package/validation.jsonl --out labelled.csv
head -3 labelled.csv
