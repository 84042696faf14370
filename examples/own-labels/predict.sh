headwater predict --model packages quickstart/labels/source/validation.jsonl --out labelled.csv
head -3 labelled.csv
