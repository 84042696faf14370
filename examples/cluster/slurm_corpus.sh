headwater corpus build pages/ --recipe webtext --out corpus --engine slurm --workers 64
sh corpus.slurm/submit.sh --partition=cpu   # further arguments go to sbatch
