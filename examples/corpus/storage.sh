headwater corpus links 's3://dumps/RS_2017-*.zst' --out links
headwater corpus build s3://bucket/pages --recipe webtext --workers 8 --out corpus
headwater lineage corpus --remote
