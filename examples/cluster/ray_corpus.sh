headwater corpus build pages/ --recipe webtext --out corpus --engine ray --address node0:6379
