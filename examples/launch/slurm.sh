#!/usr/bin/env bash
# A batch script of Slurm that trains over four nodes, with one rank on each. See weft-launch(7).
#
#   sbatch slurm.sh MODEL [OPTION of weft train]...
#
# Submit it from a directory that all nodes share: the ranks find rank 0 by a file in it. Slurm sends SIGTERM two minutes before the
# time limit; rank 0 then saves a checkpoint, if --checkpoint is given.
#SBATCH --job-name=weft
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=01:00:00
#SBATCH --signal=TERM@120
set -eu
exec srun --kill-on-bad-exit --cpus-per-task="$SLURM_CPUS_PER_TASK" \
  weft train "$@" --launcher slurm --threads "$SLURM_CPUS_PER_TASK" --join-file "$SLURM_SUBMIT_DIR/weft-join.$SLURM_JOB_ID"
