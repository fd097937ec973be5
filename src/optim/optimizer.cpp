// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.hpp"

#include <algorithm>
#include <cmath>

namespace dslide {
namespace {

// The same formulas as the kernels, for one bias; a bias is not decayed.
void adam_scalar(float &w, float &m, float &v, float g, const simd::AdamStep &s) {
    m = s.beta1 * m + (1 - s.beta1) * g;
    v = s.beta2 * v + (1 - s.beta2) * g * g;
    w -= s.rate * m / (std::sqrt(v) * s.root_bc2 + s.epsilon);
}

} // namespace

int state_planes(const dslide_trainer_options &options) {
    if (options.optimizer == DSLIDE_ADAM) return 2;
    if (options.optimizer == DSLIDE_ADAGRAD) return 1;
    return options.momentum > 0 ? 1 : 0;
}

Optimizer::Optimizer(const dslide_trainer_options &o, std::int64_t step, double rate)
    : rule_(o.optimizer), clip_value_(o.clip_value), clip_row_norm_(o.clip_row_norm), has_momentum_(o.momentum > 0) {
    const double t = static_cast<double>(step);
    const bool decoupled = o.decay_mode == DSLIDE_DECAY_DECOUPLED;
    const float l2 = decoupled ? 0 : o.weight_decay;
    const float shrink = decoupled ? static_cast<float>(1 - rate * o.weight_decay) : 1;
    const float lr = static_cast<float>(rate);
    const float beta1 = std::max(0.0f, o.beta1), beta2 = std::max(0.0f, o.beta2); // negative: 0, as 0 is the default
    adam_ = {beta1,
             beta2,
             static_cast<float>(rate / (1 - std::pow(static_cast<double>(beta1), t))),
             static_cast<float>(1 / std::sqrt(1 - std::pow(static_cast<double>(beta2), t))),
             o.epsilon,
             l2,
             shrink};
    sgd_ = {lr, o.momentum, l2, shrink};
    adagrad_ = {lr, o.epsilon, l2, shrink};
}

void Optimizer::clip(float *grad, std::int64_t n) const {
    if (clip_value_ > 0)
        for (std::int64_t j = 0; j < n; ++j) grad[j] = std::clamp(grad[j], -clip_value_, clip_value_);
    if (clip_row_norm_ > 0) {
        const float norm = std::sqrt(simd::kernels().dot(grad, grad, n));
        if (norm > clip_row_norm_) simd::kernels().scale(grad, clip_row_norm_ / norm, n);
    }
}

void Optimizer::update(const Parameters &p, std::int64_t offset, std::int64_t n, float *grad, bool is_weight) const {
    if (clip_value_ > 0 || clip_row_norm_ > 0) clip(grad, n);
    const simd::Kernels &k = simd::kernels();
    float *w = p.weights + offset;
    if (rule_ == DSLIDE_ADAM) {
        simd::AdamStep step = adam_;
        if (!is_weight) step.l2 = 0, step.shrink = 1;
        k.adam_row(w, p.state[0] + offset, p.state[1] + offset, grad, n, step);
    } else if (rule_ == DSLIDE_ADAGRAD) {
        simd::AdagradStep step = adagrad_;
        if (!is_weight) step.l2 = 0, step.shrink = 1;
        k.adagrad_row(w, p.state[0] + offset, grad, n, step);
    } else {
        simd::SgdStep step = sgd_;
        if (!is_weight) step.l2 = 0, step.shrink = 1;
        if (has_momentum_)
            k.sgd_row(w, p.state[0] + offset, grad, n, step);
        else
            for (std::int64_t j = 0; j < n; ++j) w[j] = step.shrink * w[j] - step.rate * (grad[j] + step.l2 * w[j]);
    }
}

void Optimizer::update_scalar(const Parameters &p, std::int64_t i, float grad) const {
    if (clip_value_ > 0) grad = std::clamp(grad, -clip_value_, clip_value_);
    if (clip_row_norm_ > 0) grad = std::clamp(grad, -clip_row_norm_, clip_row_norm_);
    float &w = p.weights[i];
    if (rule_ == DSLIDE_ADAM) {
        adam_scalar(w, p.state[0][i], p.state[1][i], grad, adam_);
    } else if (rule_ == DSLIDE_ADAGRAD) {
        p.state[0][i] += grad * grad;
        w -= adagrad_.rate * grad / (std::sqrt(p.state[0][i]) + adagrad_.epsilon);
    } else {
        if (has_momentum_) grad = p.state[0][i] = sgd_.momentum * p.state[0][i] + grad;
        w -= sgd_.rate * grad;
    }
}

} // namespace dslide
