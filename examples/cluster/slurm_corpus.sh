headwater corpus build pages/ --recipe webtext --out corpus --engine slurm --workers 64
# It prints the line that submits the jobs; what stands behind the script goes to sbatch.
sh .corpus.*.parts/submit.sh --partition=cpu
