/* Softmax over the vocabulary: the loss with its gradient, and the sums of log-probabilities. See elementwise.c. */
#include "elementwise.h"

/* ---- softmax and cross-entropy ---- */

typedef struct {
    void *logits;
    const int64_t *targets;
    const float *weights;
    float *losses;
    int64_t columns, stride, half;
} Loss;

ALWAYS void loss_row(const Loss *l, int64_t row, int half) {
    char *logits = (char *)l->logits + row * l->stride * (half ? 2 : 4);
    Floats most = all(-INFINITY), sum = {0};
    EACH_VECTOR(l->columns, most = larger(LOAD(logits, half, -INFINITY), most););
    const float top = largest_of(most);
    EACH_VECTOR(l->columns, sum += exponential(LOAD(logits, half, -INFINITY) - top);); /* after the end: 1e-38 */
    const float total = sum_of(sum), weight = l->weights[row], factor = weight / total;
    const int64_t target = l->targets[row];
    const float chosen = load_some(logits, target, half, 1, 0)[0] - top;
    l->losses[row] = weight * (logf(total) - chosen);
    EACH_VECTOR(l->columns, STORE(logits, half, factor * exponential(LOAD(logits, half, 0) - top)););
    store_some(logits, target, half, 1, all(factor * exponential(all(chosen))[0] - weight));
}

static void loss_work(const void *task, int64_t first, int64_t last) {
    const Loss *l = task;
    for (int64_t row = first; row < last; row++)
        if (l->half) loss_row(l, row, 1);
        else loss_row(l, row, 0);
}

/* Each row of logits becomes its gradient; losses[row] = weight · −log softmax(row)[target].
 * OUT_OF_RANGE, and nothing is written, if a target is not a column. */
EXPORT int64_t headwater_loss(void *logits, const int64_t *targets, const float *weights, float *losses, int64_t rows,
                    int64_t columns, int64_t stride, int64_t half, int64_t threads) {
    const Loss l = {logits, targets, weights, losses, columns, stride, half};
    for (int64_t row = 0; row < rows; row++)
        if (targets[row] < 0 || targets[row] >= columns) return OUT_OF_RANGE;
    return divide(loss_work, &l, rows, threads);
}

typedef struct {
    const float *logits;
    float *sums, *largest;
    int64_t columns, stride;
} LogSums;

static void log_sums_work(const void *task, int64_t first, int64_t last) {
    const LogSums *l = task;
    for (int64_t row = first; row < last; row++) {
        const float *logits = l->logits + row * l->stride;
        Floats most = all(-INFINITY), sum = {0};
        EACH_VECTOR(l->columns, most = larger(LOAD(logits, 0, -INFINITY), most););
        const float top = largest_of(most);
        EACH_VECTOR(l->columns, sum += exponential_or_zero(LOAD(logits, 0, -INFINITY) - top););
        l->sums[row] = top + logf(sum_of(sum)), l->largest[row] = top;
    }
}

/* log Σ e^logit of each row, and its largest logit. */
EXPORT int64_t headwater_log_sums(const float *logits, float *sums, float *largest, int64_t rows, int64_t columns,
                                  int64_t stride, int64_t threads) {
    const LogSums l = {logits, sums, largest, columns, stride};
    return divide(log_sums_work, &l, rows, threads);
}
