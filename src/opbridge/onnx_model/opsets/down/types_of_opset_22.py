"""What opset 22 changed only in the types that it takes: nothing to do, or casts around the node."""

TYPES_ONLY = {
    22: (
        "Acos Acosh Asin Asinh Atan Atanh Bernoulli Conv ConvTranspose Cos Cosh DeformConv Det Dropout Elu "
        "EyeLike GRU GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample HardSigmoid HardSwish "
        "InstanceNormalization LSTM LpNormalization LpPool MaxRoiPool MaxUnpool Mish Multinomial "
        "NegativeLogLikelihoodLoss RNN RandomNormal RandomNormalLike RandomUniform RandomUniformLike RoiAlign "
        "Round Selu Sin Sinh Softplus Softsign Tan ThresholdedRelu"
    )
}
