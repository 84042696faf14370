make quickstart                                                       # four minutes, with text on this machine
make quickstart ARGS="--text my_texts/ --minutes 20 --out my-model"   # with your own text
