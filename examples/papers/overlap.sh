headwater corpus overlap --train corpus --test "$HEADWATER_DATA/eval-zeroshot/wikitext2/wiki.test.tokens"
