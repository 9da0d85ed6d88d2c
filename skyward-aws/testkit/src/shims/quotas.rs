//! GetServiceQuota of Service Quotas.

use serde_json::{Value, json};

use super::Backend;
use crate::proxy::{Call, Reply};

/// AWS documents: returns an account's value, which for instances is in vCPUs. moto has no quotas
/// of EC2.
pub(crate) fn get(backend: &Backend, call: &Call) -> Reply {
    let question: Value = serde_json::from_str(&call.body).unwrap_or_default();
    let code = question["QuotaCode"].as_str().unwrap_or_default();
    let set = backend.settings().quotas.get(code).copied();
    let known = QUOTAS.iter().find(|(known, _)| *known == code);
    let (Some(value), "ec2") = (set.or(known.map(|_| PLENTY)), question["ServiceCode"].as_str().unwrap_or_default())
    else {
        return Reply::error(
            call,
            400,
            "NoSuchResourceException",
            "The request failed because the specified quota does not exist.",
        );
    };
    let name = known.map_or("Another quota", |(_, name)| name);
    let region = &backend.region;
    Reply::json(
        200,
        &json!({ "Quota": {
            "ServiceCode": "ec2",
            "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
            "QuotaArn": format!("arn:aws:servicequotas:{region}:123456789012:ec2/{code}"),
            "QuotaCode": code,
            "QuotaName": name,
            "Value": value,
            "Unit": "None",
            "Adjustable": true,
            "GlobalQuota": false,
        }}),
    )
}

/// More vCPUs than a test needs.
const PLENTY: f64 = 768.0;

/// Codes and names of quotas of EC2.
const QUOTAS: [(&str, &str); 14] = [
    ("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"),
    ("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"),
    ("L-DB2E81BA", "Running On-Demand G and VT instances"),
    ("L-3819A6DF", "All G and VT Spot Instance Requests"),
    ("L-417A185B", "Running On-Demand P instances"),
    ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"),
    ("L-C4BD4855", "All P5 Spot Instance Requests"),
    ("L-1945791B", "Running On-Demand Inf instances"),
    ("L-B5D1601B", "All Inf Spot Instance Requests"),
    ("L-2C3B7624", "Running On-Demand Trn instances"),
    ("L-6B0D517C", "All Trn Spot Instance Requests"),
    ("L-6E869C2A", "Running On-Demand DL instances"),
    ("L-85EED4F7", "All DL Spot Instance Requests"),
    ("L-74FC7D96", "Running On-Demand F instances"),
];
