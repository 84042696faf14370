headwater corpus links 's3://dumps/RS_2017-*.zst' --out s3://bucket/links
headwater corpus fetch s3://bucket/links --out s3://bucket/pages --set contact=you@example.com
headwater corpus build s3://bucket/pages --recipe webtext --workers 8 --out s3://bucket/corpus
headwater corpus stats s3://bucket/corpus
headwater lineage s3://bucket/corpus
