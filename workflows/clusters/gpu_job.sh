#!/bin/bash
# One job on one machine with GPUs: a scheduler, a worker process for each GPU, and the driver.
#
#   bash gpu_job.sh WORKFLOW [OPTIONS OF quarkline run]          on a machine that you have for yourself
#   sbatch gpu_job.sh WORKFLOW --time-limit 3h45m                as a batch job; the same command goes on later
#
#SBATCH --job-name=quarkline
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --gres=gpu:2
#SBATCH --time=04:00:00
#
# module load cuda; source /path/to/.venv/bin/activate           what the job needs to find quarkline

set -eu
workflow=${1:?usage: gpu_job.sh WORKFLOW [OPTIONS OF quarkline run]}
shift
each=${QUARKLINE_GPUS_PER_WORKER:-1}    # GPUs of a worker: export 2 or more for a lattice that one cannot hold
devices=${CUDA_VISIBLE_DEVICES:-$(nvidia-smi --query-gpu=index --format=csv,noheader | paste -sd,)}
number=$(($(tr , '\n' <<< "$devices" | grep -c .) / each))
cores=${SLURM_CPUS_PER_TASK:-$(nproc)}

folder=$(mktemp -d)
scheduler=$folder/scheduler.json
trap 'kill $(jobs -p) 2> /dev/null || true; wait; rm -rf "$folder"' EXIT

# Whoever reaches a scheduler without certificates runs code as its user: these are made for this job alone.
# setsid: an interrupt from the keyboard is for the driver alone, which stops cleanly.
export PYTHONSAFEPATH=1    # a random.py or stages.py in this folder is not imported
python3 -m stages.base.gpus || exit 3    # which says why CuPy cannot be imported
eval "$(python3 -m pipeline.running.clusters.certificates "$folder")"
export DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=2
export DASK_DISTRIBUTED__SCHEDULER__ROOTISH_TASKGROUP_DEPENDENCIES=1
export NUMBA_NUM_THREADS=$((cores / number > 0 ? cores / number : 1)) OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
export DASK_LOGGING__DISTRIBUTED=warning
export OMP_NUM_THREADS=$NUMBA_NUM_THREADS

setsid dask scheduler --protocol tls --host 127.0.0.1 --port 0 --scheduler-file "$scheduler" --no-dashboard \
    --dashboard-address 127.0.0.1:0 &
for _ in $(seq 600); do
    [ -s "$scheduler" ] && break
    sleep 0.1
done
[ -s "$scheduler" ] || { echo "gpu_job.sh: the scheduler did not start within 60 s" >&2; exit 3; }

# Workers load the workflow's stages and open their GPUs while the driver starts and plans.
export QUARKLINE_AHEAD=$workflow
worker=0
owned=$(tr , '\n' <<< "$devices" | xargs -n "$each" | tr ' ' , | head -n "$number")
for own in $owned; do    # each worker sees its own GPUs alone, from device 0 on
    CUDA_VISIBLE_DEVICES=$own setsid dask worker --scheduler-file "$scheduler" --name "gpu-$worker" --nthreads 1 \
        --resources device=1 --memory-limit 0 --nanny --death-timeout 60 --no-dashboard \
        --preload workflows.ahead \
        --dashboard-address 127.0.0.1:0 --local-directory "$folder" &
    worker=$((worker + 1))
done

quarkline run "$workflow" --cluster "$scheduler" --set cluster.backend=cuda --set cluster.gpus_per_worker="$each" "$@"
