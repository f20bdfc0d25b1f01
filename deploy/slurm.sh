#!/bin/bash
# A grid on the nodes of a Slurm job: a Ray head on the first, workers on the others, then the launch.
#
#   sbatch deploy/slurm.sh
#   sbatch --nodes=8 deploy/slurm.sh --grid heterogeneity --profile paper
#
# What follows the script's name are arguments of `python -m fedcome_ray.tune`. Options of `sbatch`
# replace those below. Before the time is up the launch is asked to stop; the same command goes on.
#
# Run with Slurm 22.05 on one machine that was two nodes; never yet on several machines, nor on GPUs.

#SBATCH --job-name=fedcome
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=1
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@300

set -euo pipefail

: "${OUTPUT:=$PWD/results}"                  # on storage that all nodes see
: "${VENV:=$PWD/.venv}"                      # the same path on every node
: "${PORT:=$((20000 + SLURM_JOB_ID % 10000))}" # two jobs may share a node
arguments=("$@")
[ $# -gt 0 ] || arguments=(--grid partial_participation --profile paper)

export PATH="$VENV/bin:$PATH"
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))') # of this job alone
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token

nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST") # a line each
head=${nodes%%$'\n'*}
ip=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}')
address="$ip:$PORT"
# Ray would count all that a node has, and not what the job was given of it.
given=(--num-cpus="${SLURM_CPUS_PER_TASK:-1}" --num-gpus="${SLURM_GPUS_ON_NODE:-0}"
  --disable-usage-stats --block)

srun --nodes=1 --ntasks=1 --nodelist="$head" \
  ray start --head --node-ip-address="$ip" --port="$PORT" --include-dashboard=false "${given[@]}" &
ray=$!
until (exec 3<>"/dev/tcp/$ip/$PORT") 2>/dev/null; do # nobody listens yet
  kill -0 "$ray"
  sleep 1
done
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  others=$((SLURM_JOB_NUM_NODES - 1))
  srun --nodes="$others" --ntasks="$others" --exclude="$head" \
    ray start --address="$address" "${given[@]}" &
fi

timeout 600 python - "$address" "$SLURM_JOB_NUM_NODES" <<'PYTHON'
import sys, time, ray

address, wanted = sys.argv[1], int(sys.argv[2])
ray.init(address=address, log_to_driver=False, logging_level="ERROR")
while sum(node["Alive"] for node in ray.nodes()) < wanted:
    time.sleep(2)
PYTHON

python -m fedcome_ray.tune --address "$address" --output "$OUTPUT" "${arguments[@]}" &
launch=$!
trap 'kill -TERM "$launch"' TERM # it stops in order, and leaves what the next job goes on from
while code=0; wait "$launch" || code=$?; kill -0 "$launch" 2>/dev/null; do :; done
kill $(jobs -p) 2>/dev/null || true # Ray
wait
exit "$code"
