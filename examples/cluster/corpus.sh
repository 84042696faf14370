headwater corpus build pages/ --recipe webtext --out corpus --workers 16
