make quickstart                                                       # four minutes, text of this machine
make quickstart ARGS="--text my_texts/ --minutes 20 --out my-model"   # your own text
