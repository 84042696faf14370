cp examples/extending/verbs.py src/headwater/evaluate/tasks/
patch -p1 < examples/extending/task.patch
python tools/tree.py --write
