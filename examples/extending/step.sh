cp examples/extending/shouting.py src/headwater/corpus/filters/
patch -p1 < examples/extending/step.patch
